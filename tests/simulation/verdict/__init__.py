"""The verdict on a run that has ended, and the scheduled functions that must then finish."""
