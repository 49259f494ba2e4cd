"""The places where autotune touches torch itself: private names, patches, the allocator, the device's clock."""
