"""Field tables of Argo and pods."""
