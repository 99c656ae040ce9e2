"""In the conventions of other ecosystems: `tl` and `pl`, where users of scanpy look for them."""
