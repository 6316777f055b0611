"""What a run or a machine can be asked about itself."""
