package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

func defaultFile() (string, error) {
	dir, err := stateDirectory()
	if err != nil {
		return "", fmt.Errorf("%w: find the directory for the default file: %w: give a path instead", errPermanent, err)
	}
	dir = filepath.Join(dir, "dlock")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("%w: make the directory for the default file: %w", errPermanent, err)
	}
	return filepath.Join(dir, "locks.db"), nil
}

func stateDirectory() (string, error) {
	switch runtime.GOOS {
	case "darwin", "ios":
		return os.UserConfigDir() // ~/Library/Application Support
	case "windows":
		return os.UserCacheDir() // %LocalAppData%
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state"), err
}
