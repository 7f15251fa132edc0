"""How often addresses, markup, numbers and symbols come through a translation.

    python benchmarks/preserved.py --run runs/base --sources test.en

Each line gets one to three of them at random places. The benchmark counts how many are
in the output, without and with `protect`.
"""

import argparse
import itertools
import json
import random
import time
from pathlib import Path

import t2t_keras

PARTS = {
    "url": [
        "http://example.org/a?b=1&c=2",
        "https://sub.example.com/Path_(x)/index.html#top",
        "www.example.net",
    ],
    "email": ["first.last@example.org", "a+b@mail.example.co.uk"],
    "markup": ["<b>", "</b>", '<a href="x">', "&amp;", "{{name}}", "%s"],
    "number": ["7", "1,234.56", "2014-05-06", "12:30", "99999"],
    "symbol": ["😀", "👍🏽", "❤️", "©", "☀"],
    "unknown": ["日本語", "Ωμέγα", "ﷺ", "§", "Ћ"],
}


def hard_line(line: str, number: int) -> tuple[str, dict[str, list[str]]]:
    """Returns a line with parts at random places, and the parts by kind."""
    rng = random.Random(number)
    words, used = line.split(), dict[str, list[str]]()
    for kind in rng.sample(list(PARTS), rng.randint(1, 3)):
        part = rng.choice(PARTS[kind])
        used[kind] = [part]
        words.insert(rng.randint(min(1, len(words)), len(words)), part)
    return " ".join(words), used


def main() -> None:
    """Translates the lines twice and prints the shares as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True, help="run directory")
    parser.add_argument("--sources", required=True, help="file with one text per line")
    parser.add_argument("--lines", type=int, default=1000)
    args = parser.parse_args()
    lines = Path(args.sources).read_text(encoding="utf-8").splitlines()
    chosen = itertools.islice(itertools.cycle(lines), args.lines)
    hard = [hard_line(line, number) for number, line in enumerate(chosen)]
    translator = t2t_keras.load(args.run)
    result: dict[str, object] = {"lines": len(hard)}
    for name, options in (("plain", {}), ("protect", {"protect": list(PARTS)})):
        start = time.perf_counter()
        outputs = translator.translate([text for text, _ in hard], **options)
        found = {kind: [0, 0] for kind in PARTS}
        for (_, used), output in zip(hard, outputs, strict=True):
            for kind, parts in used.items():
                found[kind][0] += sum(part in output for part in parts)
                found[kind][1] += len(parts)
        result[name] = {kind: round(n / of, 3) for kind, (n, of) in found.items()}
        result[f"{name}_seconds"] = round(time.perf_counter() - start, 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
