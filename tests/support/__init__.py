"""What several test files share: models, states, calls of every public function, recordings."""
