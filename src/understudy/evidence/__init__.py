"""What a data protection officer files of a run: registry entry, catalogue records, checklists, signed statements."""
