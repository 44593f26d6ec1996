"""Room inspection."""
