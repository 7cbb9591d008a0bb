"""Jobs from elsewhere, brought into a project file."""
