// Makes fsync and fdatasync take longer, by the number of microseconds in the file that
// TESTENV_DISK_DELAY names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void wait_longer(void) {
	const char *name = getenv("TESTENV_DISK_DELAY");
	FILE *file = name ? fopen(name, "r") : NULL;
	long microseconds = 0;
	if (!file)
		return;
	if (fscanf(file, "%ld", &microseconds) == 1 && microseconds > 0) {
		struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
		while (nanosleep(&left, &left) != 0 && errno == EINTR)
			;
	}
	fclose(file);
}

int fsync(int fd) {
	int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
	wait_longer();
	return next(fd);
}

int fdatasync(int fd) {
	int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	wait_longer();
	return next(fd);
}
