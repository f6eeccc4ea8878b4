"""Other auditors, each as a function of scores, bits, delta and confidence; see README.md."""
