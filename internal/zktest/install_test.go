package zktest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func touch(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, nil, mode))
}

func TestZooKeeperHomeComesBeforeDebian(t *testing.T) {
	home, debian := t.TempDir(), t.TempDir()
	touch(t, filepath.Join(home, "bin", "java"), 0o700)
	touch(t, filepath.Join(debian, "zookeeper.jar"), 0o600)
	touch(t, filepath.Join(debian, "zookeeper-jute.jar"), 0o600)

	_, err := findInstallation(home, home, debian)
	require.ErrorContains(t, err, "ZOOKEEPER_HOME", "the user has named a directory that has no such jar")

	touch(t, filepath.Join(home, "lib", "zookeeper-3.9.3.jar"), 0o600)
	found, err := findInstallation(home, home, debian)
	require.NoError(t, err)
	require.Equal(t, installation{java: filepath.Join(home, "bin", "java"), classPath: filepath.Join(home, "lib", "*")}, found)

	found, err = findInstallation("", home, debian)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(debian, "zookeeper.jar")+":"+filepath.Join(debian, "zookeeper-jute.jar"), found.classPath)

	_, err = findInstallation("", home, home)
	require.ErrorContains(t, err, "zookeeper.jar")
}

func TestMissingJavaIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := findInstallation("", "", debianJars)
	require.ErrorContains(t, err, "java")
}

func TestCuratorsJarsComeFromWhereTheVariableSays(t *testing.T) {
	given, debian := t.TempDir(), t.TempDir()
	_, err := findCurator(given, debian)
	require.ErrorContains(t, err, "CURATOR_JARS", "the user has named a directory that has no such jar")
	_, err = findCurator("", debian)
	require.ErrorContains(t, err, "install libcurator-recipes-java")

	touch(t, filepath.Join(given, "curator-recipes-5.4.0.jar"), 0o600)
	jars, err := findCurator(given, debian)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(given, "*"), jars)

	for _, name := range []string{"curator-recipes.jar", "curator-framework.jar", "curator-client.jar"} {
		touch(t, filepath.Join(debian, name), 0o600)
	}
	jars, err = findCurator("", debian)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(debian, "curator-recipes.jar")+":"+filepath.Join(debian, "curator-framework.jar")+":"+
		filepath.Join(debian, "curator-client.jar"), jars)
}
