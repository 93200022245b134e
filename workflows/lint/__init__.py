"""What is wrong with a manifest, found before it is sent."""
