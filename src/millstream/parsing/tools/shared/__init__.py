"""What several tool formats have in common."""
