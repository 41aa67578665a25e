"""Reasoning Gym with none of our code around it, as an oracle for the tests: a script that reads and writes JSON.

    echo '{"chain_sum": [[0, 1], ["7", "banana"]]}' | python tests/gym_oracle.py

The input maps each family to seeds and answers. For every seed the output has the question, the right answer, and the scores
of the right answer and of each given one, unlocked and unstripped; null if the scorer raises."""
import json
import os
import random
import sys


def main():
    asked = json.load(sys.stdin)
    out = os.dup(1)
    os.dup2(2, 1)    # nothing that the package prints may mix with the output
    from reasoning_gym import create_dataset

    found = {}
    for family, (seeds, answers) in asked.items():
        rows = found[family] = []
        for seed in seeds:
            random.seed(seed)    # list_functions draws from Python's global generator
            dataset = create_dataset(family, size=1, seed=seed)
            entry = dataset[0]
            rows.append({"question": entry["question"], "answer": entry["answer"],
                         "scores": [score(dataset, entry, answer) for answer in [entry["answer"], *answers]]})
    os.write(out, json.dumps(found).encode())


def score(dataset, entry, answer):
    try:
        return float(dataset.score_answer(answer, entry))
    except Exception:
        return None


if __name__ == "__main__":
    main()
