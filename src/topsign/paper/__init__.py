"""The paper itself: what it prints, beside what is right; and every figure and table of it, made again."""
