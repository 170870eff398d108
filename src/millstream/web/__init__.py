"""The web page at `/`: a chat and a dashboard of plain HTML, CSS and JavaScript, and the list of its files."""
