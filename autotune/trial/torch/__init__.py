"""Touches torch itself: private names, patches, the allocator, the device's clock."""
