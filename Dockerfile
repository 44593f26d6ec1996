# docker build -t wtawp . && docker run --rm -v wtawp:/data wtawp compare wine
FROM python:3.12-slim
WORKDIR /wtawp
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md CITATION.cff CONTRIBUTING.md SECURITY.md ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt '.[fast,tune]'
ENV WTAWP_HOME=/data
VOLUME /data
WORKDIR /data
ENTRYPOINT ["wtawp"]
