"""An adapter type for IOP that is no part of IOP: a backend that speaks lines of JSON over TCP."""
