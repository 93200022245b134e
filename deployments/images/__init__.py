"""Container images, written without a Docker daemon."""
