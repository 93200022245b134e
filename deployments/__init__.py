"""Ways to start flows: the command line, background processes, manifests, images."""
