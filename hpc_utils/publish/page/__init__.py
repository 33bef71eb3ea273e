"""How an executed notebook becomes a part of a page: cells to HTML, and what is put in order there."""
