"""The generator exchange: silos trade generators instead of gradients, over HTTP."""
