"""What pages of runs show: one run, two against each other, many over their nights, and the machines they were on."""
