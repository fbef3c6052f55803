"""The paper itself: what it prints, beside what is right."""
