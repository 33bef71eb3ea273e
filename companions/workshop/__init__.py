"""ResNet-50 on TinyImageNet after a public workshop's protocol: chapter 08."""
