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
	"runtime"
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

const (
	localDriver = "sqlite" // needs no server, and has a default file
	allDrivers  = "github.com/dlock-go/dlock/contrib/cmd/dlock"
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
	f.StringVar(&s.dsn, "dsn", "", "data source name of the store\n(if not given: "+dsnVariable+" of the environment, then the config file;\nkeep a password there: every user of this machine can see arguments)")
	f.StringVar(&s.config, "config", "", "`file` with the lines driver = ... and dsn = ...\n(if not given: "+configVariable+" of the environment, then dlock/config in the\nuser's configuration directory, if it exists)")
}

// source is one place that may name the store.
type source struct{ driver, dsn string }

// resolve finds the store. A data source name counts only if it comes from the
// same place as the driver, or from one that names no other driver. Without a
// driver, the store is a SQLite file, by default in the user's state directory.
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
	for _, from := range sources {
		if from.driver == "" || from.driver == s.driver {
			s.dsn = cmp.Or(s.dsn, from.dsn)
		}
	}
	known := slices.Contains(dlock.Drivers(), cmp.Or(s.driver, localDriver))
	switch {
	case s.driver == "" && s.dsn != "" && !isPath(s.dsn):
		return errors.New("-dsn needs the -driver of its store, such as -driver zk, unless it is a path such as /var/lib/locks.db")
	case s.driver == "" && !known:
		return fmt.Errorf("no store: give -driver and -dsn, or set %s and %s\n(without them %s uses a file)", driverVariable, dsnVariable, allDrivers)
	case s.driver == "mem":
		return errors.New("-driver mem excludes nobody, because each process has a memory of its own")
	case !known: // the name may be a data source name in the wrong place, so s.hide has to see it
		return fmt.Errorf("unknown driver %q: this program has the drivers %s, and %s has all", s.driver, strings.Join(dlock.Drivers(), ", "), allDrivers)
	}
	s.driver = cmp.Or(s.driver, localDriver)
	return nil
}

// isPath reports whether a data source name is surely the path of a file.
func isPath(dsn string) bool { return filepath.IsAbs(dsn) || strings.HasPrefix(dsn, ".") }

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
	found, err := readConfigFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return source{}, nil
	}
	if err != nil {
		return source{}, fmt.Errorf("config file %s: %w", path, err)
	}
	return found, nil
}

// readConfigFile never repeats a line in an error, because it may hold a
// password.
func readConfigFile(path string) (source, error) {
	file, err := os.Open(path)
	if err != nil {
		return source{}, withoutPath(err)
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
		field := map[string]*string{"driver": &found.driver, "dsn": &found.dsn}[strings.TrimSpace(key)]
		value = strings.TrimSpace(value)
		switch {
		case field == nil:
			return source{}, fmt.Errorf("line %d sets neither driver nor dsn", n)
		case *field != "":
			return source{}, fmt.Errorf("line %d gives a second %s", n, strings.TrimSpace(key))
		case value == "":
			return source{}, fmt.Errorf("line %d has no value", n)
		}
		*field = value
	}
	if err := lines.Err(); err != nil {
		return source{}, withoutPath(err)
	}
	return found, checkMode(file, found)
}

// checkMode returns an error if any user of the machine can change the store,
// or read its password.
func checkMode(file *os.File, found source) error {
	info, err := file.Stat()
	if err != nil {
		return withoutPath(err)
	}
	if runtime.GOOS == "windows" { // has no such mode
		return nil
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		return errors.New("every user can write to it: run chmod o-w on it")
	case mode&0o004 != 0 && secret.Hide(found.dsn, []string{found.dsn}) != found.dsn:
		return errors.New("every user can read the password in it: run chmod o-r on it")
	}
	return nil
}

// withoutPath removes the path that the error of a file repeats.
func withoutPath(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// open opens a client of the store. It does no I/O.
func (s *store) open(opts ...dlock.Option) (*dlock.Client, error) {
	return dlock.Open(s.driver, s.dsn, opts...)
}

// hide removes passwords of the command line and of the store from a text.
func (s *store) hide(text string, args []string) string {
	return secret.Hide(text, slices.Concat(args, []string{s.driver, s.dsn}))
}
