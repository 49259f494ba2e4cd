"""The tuned config: schema, file formats, exports, and the comparison with this machine."""
