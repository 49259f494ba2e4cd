"""The tuned config: its schema, its file formats, its exports, and whether it fits this machine."""
