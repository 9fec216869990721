"""What ``embedder.trainable: last`` costs and gains.

    python -m benchmarks.finetune speed --data cub200:FOLDER
    python -m benchmarks.finetune quality --data cub200:FOLDER --out runs/finetune --seeds 5

``speed`` measures an epoch of 'last' against one of 'all', the memory of both, and building the cache against passes
of the fastest runtime. ``quality`` trains a head, the last stages and everything with several objectives; the
validation classes of the first seed choose the objective, and the test classes are looked at once for each seed. Every
finished run is kept in --out, so that the command continues where it was stopped.
"""

import argparse
import json
from pathlib import Path

from benchmarks.finetune.quality import OBJECTIVES, Budget, is_kind, measure_quality
from benchmarks.finetune.speed import Case, measure, print_speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    speed = commands.add_parser("speed", help="seconds and memory")
    speed.add_argument("--data", required=True, help="images: a folder, a manifest or cub200:FOLDER")
    speed.add_argument("--backbones", nargs="+", default=["efficientnet-lite0", "resnet50"])
    speed.add_argument("--sizes", nargs="+", type=int, default=[112, 224])
    speed.add_argument("--weights", default="random", help="a file, for one backbone; the speed does not depend on it")
    speed.add_argument("--last", type=int, help="stages that learn; default: the recipe's")
    speed.add_argument("--views", type=int, default=4)
    speed.add_argument("--batch", type=int, default=64)
    speed.add_argument("--steps", type=int, default=3, help="measured steps of 'all', each round")
    speed.add_argument("--images", type=int, default=256, help="images of the cache that is built")
    speed.add_argument("--rounds", type=int, default=2)
    one = commands.add_parser("measure", help="what speed runs in a process of its own")
    one.add_argument("case", help="JSON")
    quality = commands.add_parser("quality", help="recall@1 and MAP@R on unseen classes")
    quality.add_argument("--data", required=True)
    quality.add_argument("--out", type=Path, required=True)
    quality.add_argument("--seeds", type=int, default=5)
    quality.add_argument("--size", type=int, default=112)
    quality.add_argument("--crop", type=float, default=1.0)
    quality.add_argument("--epochs", type=int, default=10, help="of 'last' and 'all'; a head gets twice as many")
    quality.add_argument("--kinds", nargs="+", default=["head", "last"], help="head, last, last:STAGES, all")
    quality.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    quality.add_argument("--set", dest="overrides", action="append", default=[], help="a field of every recipe")
    arguments = parser.parse_args()
    if wrong := [kind for kind in getattr(arguments, "kinds", []) if not is_kind(kind)]:
        parser.error(f"--kinds takes head, last, last:STAGES and all, not {', '.join(wrong)}")
    if arguments.command == "measure":
        print(json.dumps(measure(Case(**json.loads(arguments.case)))))
    elif arguments.command == "speed":
        shared = {name: getattr(arguments, name) for name in ("data", "weights", "last", "views", "batch", "images")}
        cases = [
            Case(backbone=backbone, size=size, steps=arguments.steps, **shared)
            for backbone in arguments.backbones
            for size in arguments.sizes
        ]
        print_speed(cases, arguments.rounds)
    else:
        budget = Budget(arguments.seeds, arguments.size, arguments.crop, arguments.epochs, tuple(arguments.overrides))
        measure_quality(arguments.data, arguments.out, budget, arguments.kinds, arguments.objectives)


if __name__ == "__main__":
    main()
