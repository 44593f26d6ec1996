"""The files of published data sets: their paths, the sha256 of their bytes, and the addresses they are fetched from."""

from wtawp.graphs.download import RemoteFile

PLANETOID_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")

_SHA256 = {
    "metattack_npz/citeseer.npz": "36e9a5bbe84eaa0c3c6b226f8b27450bb79246a5df22c375b3bacddb856efa8e",
    "metattack_npz/cora.npz": "398a5c8f949a4f2a3c8fb248f777d2756c654de714762d6a18c04eaa19a96271",
    "metattack_npz/polblogs.npz": "cd0983c2b1caa3bbe2703a4e316f97bb1dccd33f98800d3d8e4bbe51cc86941b",
    "planetoid/ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "planetoid/ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "planetoid/ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "planetoid/ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "planetoid/ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "planetoid/ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "planetoid/ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "planetoid/ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "planetoid/ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "planetoid/ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "planetoid/ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "planetoid/ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "planetoid/ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "planetoid/ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "planetoid/ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "planetoid/ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "planetoid/ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "planetoid/ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "planetoid/ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "planetoid/ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "planetoid/ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "planetoid/ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "planetoid/ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "planetoid/ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    "graphdata_npz/amazon_cs.npz": "a6942db609f196b53503d91b99a02ad8d052d5d9be8ef41db976fb65f66ed1f3",
    "graphdata_npz/coauthor_phy.npz": "1c930d99910763bc5f0c1aa90e8baa945f5ad6027663fe5332d0f08fde33cd7d",
    "tudataset/IMDB-BINARY.zip": "2a4abb6431ec1ab025a6fbcd3b546607191f79a1e0aef0f42cd8bd4ec1546116",
    "tudataset/IMDB-MULTI.zip": "1d22bb88ee69f9f7c09eb7f072dadec56e3f91ad4b14cfd99231379b68073883",
    "tudataset/PROTEINS.zip": "fe9d19741637486ea1fd285bf669fce0b117e10b03cdd379f6a5e6197fc830ae",
}


def _github(repository: str, branch: str, commit: str, path: str) -> tuple[str, ...]:
    """GitHub itself at the branch its readers name, then a public copy at the commit whose bytes were hashed."""
    return (
        f"https://raw.githubusercontent.com/{repository}/{branch}/{path}",
        f"https://cdn.jsdelivr.net/gh/{repository}@{commit}/{path}",
    )


def _mirrors(path: str) -> tuple[str, ...]:
    folder, name = path.split("/")
    if folder == "metattack_npz":
        commit = "982d900d05f19f0bd061b8d4988310bd7baa5f91"
        return _github("danielzuegner/gnn-meta-attack", "master", commit, f"data/{name}")
    if folder == "planetoid":
        commit = "af6abf468a772cc055bec88c52e4d6f51b7c37e3"
        return _github("kimiyoung/planetoid", "master", commit, f"data/{name}")
    if folder == "graphdata_npz":
        commit = "f8022c26b917346f2a461ffec0ec5ae24b36de68"
        return _github("EdisonLeeeee/GraphData", "master", commit, f"datasets/{name}")
    # TU's own archives may be zipped anew, with equal members in other bytes: then the sha256 refuses them, and the
    # copy whose bytes were hashed, asked first, is the only source.
    commit = "72eaa1c6bd70a90fde772ad4a21049ccd6bc97a2"
    own = f"https://www.chrsmrrs.com/graphkerneldatasets/{name}"
    return (*_github("bknyaz/graph_nn", commit, commit, f"data/{name}"), own)


FILES = {path: RemoteFile(path, sha256, _mirrors(path)) for path, sha256 in _SHA256.items()}
