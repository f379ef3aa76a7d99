package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock"
)

// store describes a store for which this repository has a driver.
type store struct {
	driver, title string
	dsn           string // an example of a data source name
	optional      bool   // the driver needs no data source name
}

var knownStores = []store{
	{inMemory, "a store within this process", "", true},
	{"zk", "ZooKeeper", "zk://localhost:2181/locks", false},
	{"redis", "Redis", "redis://localhost:6379", false},
	{"postgres", "PostgreSQL", "postgres://user@localhost/database", false},
	{"mysql", "MySQL or MariaDB", "user@tcp(localhost:3306)/database", false},
	{"sqlite", "a file that the processes of this machine share", "/tmp/locks.db", true},
	{"etcd", "etcd", "etcd://localhost:2379", false},
}

// allDrivers is the path of the program that has every driver.
const allDrivers = "github.com/dlock-go/dlock/contrib/cmd/dlock"

// available returns the names of the drivers that this program has.
func available() string { return strings.Join(dlock.Drivers(), ", ") }

// checkStore checks that there is a data source name if the driver needs one, and
// that this program has the driver. For a driver that is not in knownStores it
// checks nothing, because dlock.Open reports an unknown driver.
func (s *settings) checkStore() error {
	i := slices.IndexFunc(knownStores, func(st store) bool { return st.driver == s.driver })
	switch {
	case i < 0:
		return nil
	case s.dsn == "" && !knownStores[i].optional:
		return fmt.Errorf("-driver %s needs -dsn, such as -dsn '%s', or %s in the environment", s.driver, knownStores[i].dsn, dsnVariable)
	case !slices.Contains(dlock.Drivers(), s.driver):
		return fmt.Errorf("this program has the drivers %s, and %s has all", available(), allDrivers)
	}
	return nil
}

// storesText returns the part of the help about the drivers of this program.
func storesText() string {
	var text strings.Builder
	for _, st := range knownStores {
		if !slices.Contains(dlock.Drivers(), st.driver) {
			continue
		}
		fmt.Fprintf(&text, "  %-9s %s\n", st.driver, st.title)
		switch {
		case st.dsn != "" && st.optional:
			fmt.Fprintf(&text, "            -dsn '%s' (not required)\n", st.dsn)
		case st.dsn != "":
			fmt.Fprintf(&text, "            -dsn '%s'\n", st.dsn)
		}
	}
	return text.String()
}
