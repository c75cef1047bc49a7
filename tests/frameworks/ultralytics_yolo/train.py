# After docs.ultralytics.com/modes/train: a model from its YAML, and resume=True from the last weights. The pictures are made here.
import os
import random
from pathlib import Path

os.environ.setdefault("YOLO_OFFLINE", "true")
from PIL import Image, ImageDraw
from ultralytics import YOLO


def pictures(root):
    random.seed(0)
    for part, count in [("train", 24), ("val", 4)]:
        (root / "images" / part).mkdir(parents=True, exist_ok=True)
        (root / "labels" / part).mkdir(parents=True, exist_ok=True)
        for n in range(count):
            image = Image.new("RGB", (64, 64), "white")
            x, y = random.randint(8, 40), random.randint(8, 40)
            ImageDraw.Draw(image).rectangle([x, y, x + 16, y + 16], fill="red")
            image.save(root / "images" / part / f"{n}.png")
            (root / "labels" / part / f"{n}.txt").write_text(f"0 {(x + 8) / 64} {(y + 8) / 64} 0.25 0.25\n")
    (root / "data.yaml").write_text(f"path: {root}\ntrain: images/train\nval: images/val\nnames:\n  0: square\n")


def main():
    data = Path("data").resolve()
    pictures(data)
    last = Path("runs/detect/train/weights/last.pt")
    if last.exists():
        print(f"resuming from {last}")
        model = YOLO(last)
        model.train(resume=True)
    else:
        print("training from scratch")
        model = YOLO("yolov8n.yaml")
        model.train(data=str(data / "data.yaml"), epochs=150, imgsz=64, batch=8, device="cpu", workers=0, plots=False)


if __name__ == "__main__":
    main()
