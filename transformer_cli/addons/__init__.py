"""The add-ons that come along: each registers what it brings, as a user's plugin does."""
