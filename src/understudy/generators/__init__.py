"""What a run leaves behind: generators and classifiers, and the folders that they are
saved in.
"""
