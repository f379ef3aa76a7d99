package command

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/secret"
)

// Environment variables that name the store.
const (
	driverVariable  = "DLOCK_DRIVER"
	dsnVariable     = "DLOCK_DSN"
	configVariable  = "DLOCK_CONFIG"
	requireVariable = "DLOCK_REQUIRE"
)

const (
	localDriver = "sqlite" // the default, which needs no server
	allDrivers  = "github.com/dlock-go/dlock/contrib/cmd/dlock"
)

// store says which store a command uses. Flags take precedence over the
// environment, which takes precedence over a config file.
type store struct {
	driver, dsn string // from flags; after resolve, those in effect
	config      string // config file; empty for the default paths
}

// systemConfig is the machine's config file, read last. It serves sudo and
// cron, which drop the user's environment.
var systemConfig = "/etc/dlock/config"

func (s *store) flags(f *flag.FlagSet) {
	f.StringVar(&s.driver, "driver", "", "kind of store: "+strings.Join(dlock.Drivers(), ", ")+"\n(if not given: that of the scheme of -dsn, such as zk://, then "+driverVariable+"\nof the environment, then the config file)")
	f.StringVar(&s.dsn, "dsn", "", "data source name of the store\n(if not given: "+dsnVariable+" of the environment, then the config file;\nkeep a password there: every user of this machine can see arguments)")
	f.StringVar(&s.config, "config", "", "`file` with the lines driver = ..., dsn = ... and require = shared\n(if not given: "+configVariable+" of the environment, then dlock/config in the\nuser's configuration directory, then "+systemConfig+")")
}

// source holds the settings found in one place, such as the environment.
type source struct{ driver, dsn, require string }

// resolve determines the store. It ignores a data source name whose own source,
// such as the environment, names another driver than the chosen one.
func (s *store) resolve() error {
	file, err := s.readConfig()
	if err != nil {
		return err
	}
	sources := []source{{s.driver, s.dsn, ""}, {os.Getenv(driverVariable), os.Getenv(dsnVariable), os.Getenv(requireVariable)}, file}
	s.driver, s.dsn = "", ""
	for i := range sources {
		if from := &sources[i]; s.driver == "" {
			from.driver = cmp.Or(from.driver, driverOf(from.dsn))
			s.driver = from.driver
		}
	}
	for _, from := range sources {
		if from.driver == "" || from.driver == s.driver {
			s.dsn = cmp.Or(s.dsn, from.dsn)
		}
	}
	known := slices.Contains(dlock.Drivers(), cmp.Or(s.driver, localDriver))
	switch {
	case s.driver == "" && s.dsn == "" && s.config != "":
		return fmt.Errorf("config file %s: it names no store: remove it, or give it a line such as driver = redis", s.config)
	case s.driver == "" && s.dsn != "" && !isPath(s.dsn):
		return errors.New("-dsn needs the -driver of its store, unless it is a path such as /var/lib/locks.db or begins with one of " + strings.Join(knownSchemes(), ", "))
	case s.driver == "" && !known:
		return fmt.Errorf("no store: give -driver and -dsn, or set %s and %s\n(without them %s uses a file)", driverVariable, dsnVariable, allDrivers)
	case s.driver == "mem":
		return errors.New("-driver mem excludes nobody, because each process has a memory of its own")
	case !known: // s.hide needs s.driver, which may be a dsn
		text := fmt.Sprintf("unknown driver %q: this program has the drivers %s", s.driver, strings.Join(dlock.Drivers(), ", "))
		if !slices.Contains(dlock.Drivers(), localDriver) {
			text += ", and " + allDrivers + " has all"
		}
		return errors.New(text)
	}
	s.driver = cmp.Or(s.driver, localDriver)
	required := cmp.Or(sources[1].require, file.require)
	switch {
	case required != "" && required != "shared":
		return errors.New("require, or " + requireVariable + ", can only be shared")
	case required != "" && s.driver == localDriver:
		return fmt.Errorf("a store of several machines is required, and %s excludes only processes of this one: give -driver and -dsn", localDriver)
	case s.driver == localDriver && s.dsn != "" && s.dsn == file.dsn && !filepath.IsAbs(s.dsn) && s.dsn[0] != '?':
		return errors.New("the dsn in the config file is a relative path, which names another file in each directory: give an absolute one")
	}
	return nil
}

// schemes maps the schemes of data source names to their drivers, unless a
// scheme is itself the name of its driver.
var schemes = map[string]string{"rediss": "redis", "valkey": "redis", "valkeys": "redis", "unix": "redis", "postgresql": "postgres"}

// driverOf returns the driver for the scheme of a data source name, or "".
func driverOf(dsn string) string {
	scheme, _, found := strings.Cut(dsn, "://")
	name := cmp.Or(schemes[scheme], scheme)
	if found && slices.Contains(dlock.Drivers(), name) {
		return name
	}
	return ""
}

func knownSchemes() (known []string) {
	for _, name := range slices.Concat(dlock.Drivers(), slices.Sorted(maps.Keys(schemes))) {
		if text := name + "://"; driverOf(text) != "" && name != localDriver && name != "mem" && name != "mysql" {
			known = append(known, text)
		}
	}
	return known
}

// isPath reports whether a data source name is certainly a file path.
func isPath(dsn string) bool { return filepath.IsAbs(dsn) || strings.HasPrefix(dsn, ".") }

// readConfig reads the first config file that exists. A missing file is an error
// only if the user named that file.
func (s *store) readConfig() (found source, err error) {
	paths := []string{cmp.Or(s.config, os.Getenv(configVariable))}
	named := paths[0] != ""
	if !named {
		paths = nil
		if dir, err := os.UserConfigDir(); err == nil {
			paths = append(paths, filepath.Join(dir, "dlock", "config"))
		}
		if filepath.IsAbs(systemConfig) { // false on Windows
			paths = append(paths, systemConfig)
		}
	}
	for _, path := range paths {
		switch found, err = readConfigFile(path); {
		case err == nil:
			s.config = path
			return found, nil
		case named || !errors.Is(err, fs.ErrNotExist):
			return source{}, fmt.Errorf("config file %s: %w", path, err)
		}
	}
	return source{}, nil
}

// readConfigFile reads a config file. Its errors never repeat a line, because
// the line may contain a password.
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
		field := map[string]*string{"driver": &found.driver, "dsn": &found.dsn, "require": &found.require}[strings.TrimSpace(key)]
		value = strings.TrimSpace(value)
		switch {
		case field == nil:
			return source{}, fmt.Errorf("line %d sets none of driver, dsn and require", n)
		case *field != "":
			return source{}, fmt.Errorf("line %d gives a second %s", n, strings.TrimSpace(key))
		case value == "":
			return source{}, fmt.Errorf("line %d has no value", n)
		case slices.ContainsFunc(strings.Fields(value), func(word string) bool { return word[0] == '#' }):
			return source{}, fmt.Errorf("line %d has a comment behind the value, which would be part of it: give the comment a line of its own", n)
		}
		*field = value
	}
	if err := lines.Err(); err != nil {
		return source{}, withoutPath(err)
	}
	return found, checkMode(file, found)
}

// checkMode returns an error if other users of the machine could change which
// store is used, or could read its password.
func checkMode(file *os.File, found source) error {
	info, err := file.Stat()
	if err != nil {
		return withoutPath(err)
	}
	if runtime.GOOS == "windows" || !info.Mode().IsRegular() { // Windows has no such mode bits
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

// withoutPath removes the path from a file error, for callers that print it.
func withoutPath(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

func (s *store) open(opts ...dlock.Option) (*dlock.Client, error) {
	return dlock.Open(s.driver, s.dsn, opts...)
}

// name returns the store's name for messages: the driver and the DSN or, with
// SQLite, the database file, which sessions report as their server.
func (s *store) name(server string) string {
	if s.driver != localDriver || server == "" {
		server = s.dsn
	}
	return strings.TrimSpace(s.driver + " " + s.hide(server, nil))
}

// hide removes from text the passwords in args and in the data source name.
func (s *store) hide(text string, args []string) string {
	return secret.Hide(text, slices.Concat(args, []string{s.driver, s.dsn}))
}
