"""How many planted label errors are found, and what finding them takes in memory and time.

python -m benchmarks.label_problems             # wrong labels planted into the test classes of the demo's icons
python -m benchmarks.label_problems --large     # 60,000 vectors of 512 dimensions: peak memory and seconds
"""
