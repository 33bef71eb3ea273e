"""From analysis to readers: chapters and their exports, charts, tables, the report; computes nothing.

The room holds one chart or table for each question of the chapters, and each needs its own labels and layout; that is most of
its code. What charts share is in `plots/drawing.py`, what tables share in `tables.py`.
"""
