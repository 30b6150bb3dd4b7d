"""A receiver for uploads from people's devices: `box` what is taken and kept, `app`
over HTTPS.
"""
