"""What a host tells of itself over one connection: facts of every kind, and whom of its peers it reaches."""
