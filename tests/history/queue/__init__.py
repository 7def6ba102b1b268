"""The checks of share groups (G11) and of delayed records (G12): what their clients were told of each record."""
