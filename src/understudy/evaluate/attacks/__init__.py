"""What an attacker learns from a release about the people behind it. Every attack has a
control and a baseline.
"""
