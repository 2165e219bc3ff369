"""Raw kernel helpers: they write into the caller's memory, and know nothing of autograd."""
