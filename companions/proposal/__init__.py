"""A proposal's work plan, and the node-hours of its studies: chapter 07."""
