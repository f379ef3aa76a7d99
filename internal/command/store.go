package command

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/secret"
)

// Variables of the environment that name the store.
const (
	driverVariable = "DLOCK_DRIVER"
	dsnVariable    = "DLOCK_DSN"
	configVariable = "DLOCK_CONFIG"
)

// store says which store a command uses. The flags win over the environment,
// and the environment wins over the config file.
type store struct {
	driver, dsn string // as given by the flags until resolve, then in effect
	config      string // path of the config file; empty means the default path
}

// flags registers the flags by which a command names its store.
func (s *store) flags(f *flag.FlagSet) {
	f.StringVar(&s.driver, "driver", "", "kind of store: "+strings.Join(dlock.Drivers(), ", ")+"\n(if not given: "+driverVariable+" of the environment, then the config file)")
	f.StringVar(&s.dsn, "dsn", "", "data source name of the store\n(if not given: "+dsnVariable+" of the environment, then the config file;\nkeep a password there, because every user of this machine can see arguments)")
	f.StringVar(&s.config, "config", "", "`file` with lines such as driver = zk and dsn = zk://zk1:2181/locks\n(if not given: "+configVariable+" of the environment, then dlock/config in the\nuser's configuration directory, if it exists)")
}

// source is one place that may name the store.
type source struct{ driver, dsn string }

// resolve finds the store. A data source name counts only if it comes from the
// same place as the driver, or from one that names no other driver.
func (s *store) resolve() error {
	file, err := s.readConfig()
	if err != nil {
		return err
	}
	sources := []source{{s.driver, s.dsn}, {os.Getenv(driverVariable), os.Getenv(dsnVariable)}, file}
	s.driver, s.dsn = "", ""
	for _, from := range sources {
		s.driver = cmp.Or(s.driver, from.driver)
	}
	if s.driver == "" {
		if slices.ContainsFunc(sources, func(from source) bool { return from.dsn != "" }) {
			return errors.New("-dsn needs the -driver of its store, such as -driver zk")
		}
		return s.useLocal()
	}
	for _, from := range sources {
		if from.driver == "" || from.driver == s.driver {
			s.dsn = cmp.Or(s.dsn, from.dsn)
		}
	}
	if s.driver == "mem" {
		return errors.New("-driver mem excludes nobody: each process has a memory of its own")
	}
	return nil
}

// localDriver needs no server.
const localDriver = "sqlite"

// useLocal chooses a file in the user's state directory.
func (s *store) useLocal() error {
	if !slices.Contains(dlock.Drivers(), localDriver) {
		return fmt.Errorf("no store: give -driver and -dsn, or set %s and %s", driverVariable, dsnVariable)
	}
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("no directory for the locks of this user (give -driver and -dsn): %w", err)
		}
		dir = filepath.Join(home, ".local", "state")
	}
	dir = filepath.Join(dir, "dlock")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("no directory for the locks of this user (give -driver and -dsn): %w", err)
	}
	s.driver, s.dsn = localDriver, filepath.Join(dir, "locks.db")
	return nil
}

// readConfig reads the config file. A missing file is an error only if it was
// named.
func (s *store) readConfig() (source, error) {
	path := cmp.Or(s.config, os.Getenv(configVariable))
	named := path != ""
	if !named {
		dir, err := os.UserConfigDir()
		if err != nil {
			return source{}, nil
		}
		path = filepath.Join(dir, "dlock", "config")
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return source{}, nil
	}
	if err != nil {
		return source{}, fmt.Errorf("config file: %w", err)
	}
	defer file.Close()
	var found source
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "driver":
			found.driver = value
		case "dsn":
			found.dsn = value
		default: // do not repeat the line, which may hold a password
			return source{}, fmt.Errorf("config file %s, line %d: not driver = ... or dsn = ...", path, n)
		}
	}
	return found, lines.Err()
}

// open opens a client of the store. It does no I/O.
func (s *store) open(opts ...dlock.Option) (*dlock.Client, error) {
	return dlock.Open(s.driver, s.dsn, opts...)
}

// hide removes passwords of the command line and of the store from a text.
func (s *store) hide(text string, args []string) string {
	return secret.Hide(text, slices.Concat(args, []string{s.dsn}))
}
