package command

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memdriver"
)

// Stand-ins for the drivers that a program may have registered.
func init() {
	for _, name := range []string{"zk", "redis", localDriver} {
		dlock.Register(name, memdriver.Driver{})
	}
}

// withoutStore clears the environment, and returns the path of the missing
// default config file.
func withoutStore(t *testing.T) (config string) {
	for _, name := range []string{driverVariable, dsnVariable, configVariable, requireVariable} {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	systemConfig = filepath.Join(dir, "system")
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("AppData", dir)
	dir, err := os.UserConfigDir()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "dlock"), 0o700))
	return filepath.Join(dir, "dlock", "config")
}

func TestTheStoreComesFromFlagsThenEnvironmentThenFile(t *testing.T) {
	for _, c := range []struct{ flags, env, file, want source }{
		{want: source{"sqlite", "", ""}},
		{flags: source{"", "/x/locks.db", ""}, want: source{"sqlite", "/x/locks.db", ""}},
		{env: source{"", "./locks.db", ""}, want: source{"sqlite", "./locks.db", ""}},
		{flags: source{"zk", "zk://a", ""}, env: source{"redis", "redis://b", ""}, file: source{"redis", "redis://c", ""}, want: source{"zk", "zk://a", ""}},
		{env: source{"redis", "redis://b", ""}, file: source{"zk", "zk://c", ""}, want: source{"redis", "redis://b", ""}},
		{file: source{"zk", "zk://c", ""}, want: source{"zk", "zk://c", ""}},
		{flags: source{"zk", "", ""}, env: source{"", "zk://b", ""}, want: source{"zk", "zk://b", ""}},
		{flags: source{"", "zk://a", ""}, env: source{"zk", "zk://b", ""}, want: source{"zk", "zk://a", ""}},
		{flags: source{"", "zk://a", ""}, file: source{"zk", "zk://c", ""}, want: source{"zk", "zk://a", ""}},
		{flags: source{"zk", "", ""}, env: source{"redis", "redis://b", ""}, want: source{"zk", "", ""}},
		{flags: source{"", "zk://a", ""}, env: source{"redis", "redis://b", ""}, want: source{"zk", "zk://a", ""}},
		{env: source{"", "valkeys://b", ""}, file: source{"zk", "zk://c", ""}, want: source{"redis", "valkeys://b", ""}},
		{flags: source{"zk", "", ""}, env: source{"", "redis://b", ""}, want: source{"zk", "redis://b", ""}},
		{flags: source{"", "frob://b", ""}, file: source{"zk", "zk://c", ""}, want: source{"zk", "frob://b", ""}},
		{flags: source{"zk", "", ""}, env: source{"redis", "redis://b", ""}, file: source{"zk", "zk://c", ""}, want: source{"zk", "zk://c", ""}},
	} {
		config := withoutStore(t)
		t.Setenv(driverVariable, c.env.driver)
		t.Setenv(dsnVariable, c.env.dsn)
		if c.file != (source{}) {
			require.NoError(t, os.WriteFile(config, []byte("# store\n\n driver="+c.file.driver+"\r\ndsn  = "+c.file.dsn), 0o600))
		}
		s := store{driver: c.flags.driver, dsn: c.flags.dsn}
		require.NoError(t, s.resolve(), "%+v", c)
		assert.Equal(t, c.want, source{s.driver, s.dsn, ""}, "%+v", c)
	}
}

func TestAStoreThatIsNoneIsRefused(t *testing.T) {
	for _, c := range []struct {
		store store
		says  string
	}{
		{store{driver: "mem"}, "-driver mem excludes nobody"},
		{store{driver: "frob"}, `unknown driver "frob": this program has the drivers ` + strings.Join(dlock.Drivers(), ", ")},
		{store{dsn: "postgres://db"}, "begins with one of "},
		{store{dsn: "frob://alice:geheim@h"}, "zk://, rediss://, unix://, valkey://, valkeys://"},
		{store{dsn: "locks.db"}, "-dsn needs the -driver"},
	} {
		withoutStore(t)
		err := c.store.resolve()
		assert.ErrorContains(t, err, c.says)
		assert.NotContains(t, err.Error(), allDrivers, "this program has sqlite, as the one with all drivers")
	}
	s := store{driver: "zk://alice:geheim@h"}
	assert.NotContains(t, s.hide(s.resolve().Error(), nil), "geheim", "a data source name in the wrong place, from the environment")
}

func TestPasswordsAreHiddenWhereverTheyCameFrom(t *testing.T) {
	const dsn = "redis://alice:geheim@h"
	assert.NotContains(t, (&store{dsn: dsn}).hide("dial "+dsn, nil), "geheim")
	assert.NotContains(t, new(store).hide("dial "+dsn, []string{"-dsn", dsn}), "geheim")
}

func TestANamedConfigFileIsRead(t *testing.T) {
	withoutStore(t)
	path := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(path, []byte("driver = zk\n"), 0o600))
	t.Setenv(configVariable, path)
	s := store{}
	require.NoError(t, s.resolve())
	assert.Equal(t, "zk", s.driver)

	for _, s := range []store{{config: path + "-missing"}, {config: filepath.Dir(path)}} {
		err := s.resolve()
		require.ErrorContains(t, err, "config file "+s.config)
		assert.Equal(t, 1, strings.Count(err.Error(), s.config))
	}
}

func TestABadConfigFileIsRefusedWithoutItsPassword(t *testing.T) {
	for text, says := range map[string]string{
		"":                            "names no store",
		"# driver = redis\n":          "names no store",
		"drivr = redis":               "line 1 sets none of driver, dsn and require",
		"# x\nredis://alice:geheim@h": "line 2 sets none",
		"driver = zk\ndsn = zk://alice:geheim@h\t# main": "line 2 has a comment behind the value",
		"driver = sqlite\ndsn = locks.db":                "relative path",
		"dsn = ./locks.db":                               "relative path",
		"driver = zk\nrequire = geheim":                  "can only be shared",
		"dsn":                                            "line 1 has no value",
		"dsn = a\n\ndsn = redis://alice:geheim@h":        "line 3 gives a second dsn",
		"dsn = " + strings.Repeat("geheim", 1<<14):       "too long",
	} {
		require.NoError(t, os.WriteFile(withoutStore(t), []byte(text), 0o600))
		err := new(store).resolve()
		require.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "geheim")
	}
}

func TestAConfigFileThatOthersCanChangeOrWhosePasswordTheyCanReadIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode")
	}
	const login, none = "driver = redis\ndsn = redis://alice:geheim@h", "driver = redis\ndsn = redis://h"
	for _, c := range []struct {
		text string
		mode os.FileMode
		says string
	}{
		{login, 0o640, ""}, {login, 0o644, "chmod o-r"}, {none, 0o644, ""}, {none, 0o646, "chmod o-w"},
	} {
		path := withoutStore(t)
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		require.NoError(t, os.Chmod(path, c.mode))
		err := new(store).resolve()
		if c.says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.says)
		assert.NotContains(t, err.Error(), "geheim")
	}
}

func TestTheMachinesConfigFileIsTheLastPlace(t *testing.T) {
	config := withoutStore(t)
	require.NoError(t, os.WriteFile(systemConfig, []byte("driver = redis"), 0o600))
	var s store
	require.NoError(t, s.resolve())
	assert.Equal(t, "redis", s.driver, "without a file of the user, as under sudo")

	require.NoError(t, os.WriteFile(config, []byte("driver = zk"), 0o600))
	s = store{}
	require.NoError(t, s.resolve())
	assert.Equal(t, "zk", s.driver)
}

func TestAStoreOfOneMachineIsRefusedWhereASharedOneIsRequired(t *testing.T) {
	for _, c := range []struct {
		store store
		env   string
		file  string
		says  string
	}{
		{store{}, "shared", "", "a store of several machines is required"},
		{store{}, "", "require = shared", "names no store"},
		{store{dsn: "/x/locks.db"}, "", "require = shared", "a store of several machines is required"},
		{store{driver: "mem"}, "shared", "", "excludes nobody"},
		{store{driver: "zk"}, "yes", "", "can only be shared"},
		{store{driver: "zk"}, "shared", "", ""},
		{store{}, "", "driver = zk\nrequire = shared", ""},
	} {
		config := withoutStore(t)
		t.Setenv(requireVariable, c.env)
		if c.file != "" {
			require.NoError(t, os.WriteFile(config, []byte(c.file), 0o600))
		}
		if err := c.store.resolve(); c.says != "" {
			assert.ErrorContains(t, err, c.says, "%+v", c)
		} else {
			assert.NoError(t, err, "%+v", c)
		}
	}
}

func TestEachCommandRefusesAStoreOfOneMachine(t *testing.T) {
	withoutStore(t)
	t.Setenv(requireVariable, "shared")
	_, err := parseRun([]string{"l", "--", "true"})
	assert.ErrorContains(t, err, "a store of several machines is required")
	for _, args := range []string{"queue l", "ls", "release l n", "doctor"} {
		status, _, errs := runTool(t, strings.Fields(args)...)
		assert.Equal(t, usageStatus, status, args)
		assert.Contains(t, errs, "a store of several machines is required", args)
	}
}
