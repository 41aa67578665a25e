"""Reasoning Gym without anything of ours around it: started as a script, asked in JSON, for the tests to compare with.

    echo '{"chain_sum": [[0, 1], ["7", "banana"]]}' | python tests/gym_oracle.py

For each family, seeds and answers: the question and the right answer of every seed, and what each answer and the right one
score on it, unlocked and as it stands; null where the scorer raises. One family draws from Python's own generator, so that
is seeded."""
import json
import os
import random
import sys


def main():
    asked = json.load(sys.stdin)
    out = os.dup(1)
    os.dup2(2, 1)
    from reasoning_gym import create_dataset

    found = {}
    for family, (seeds, answers) in asked.items():
        rows = found[family] = []
        for seed in seeds:
            random.seed(seed)
            dataset = create_dataset(family, size=1, seed=seed)
            entry = dataset[0]
            rows.append({"question": entry["question"], "answer": entry["answer"],
                         "scores": [scored(dataset, entry, answer) for answer in [entry["answer"], *answers]]})
    os.write(out, json.dumps(found).encode())


def scored(dataset, entry, answer):
    try:
        return float(dataset.score_answer(answer, entry))
    except Exception:
        return None


if __name__ == "__main__":
    main()
