"""Examples of whole steps on meshes, played and measured."""
