package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

func compileLibrary(name string, source []byte) ([]byte, error) {
	return Compile(name, source, "-shared", "-fPIC", "-ldl")
}

// Compile compiles the C program source and returns the result. It needs Linux
// and a C compiler. The name appears in error messages.
func Compile(name string, source []byte, flags ...string) ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("testenv: %s needs Linux", name)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		if cc, err = exec.LookPath("gcc"); err != nil {
			return nil, errors.New("testenv: " + name + " needs a C compiler")
		}
	}
	dir, err := os.MkdirTemp("", "testenv-"+name+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, binary := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, err
	}
	arguments := append([]string{"-O1", "-o", binary, file}, flags...)
	if output, err := exec.Command(cc, arguments...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("testenv: %s: %w: %s", cc, err, output)
	}
	return os.ReadFile(binary)
}

// preload writes a library to path. It returns a command that, put before a
// program's command line, makes the program load the library and sets the
// environment variable ("name=value").
func preload(path string, library []byte, variable string) ([]string, error) {
	if err := os.WriteFile(path, library, 0o700); err != nil {
		return nil, err
	}
	return []string{"/usr/bin/env", "LD_PRELOAD=" + path, variable}, nil
}
