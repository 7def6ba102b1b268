"""The rows of `penstock prove`: what only a deployed stage can show, each as one check with what it may cost."""
