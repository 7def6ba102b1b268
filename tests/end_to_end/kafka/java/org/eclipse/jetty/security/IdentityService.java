package org.eclipse.jetty.security;

/** See SecurityHandler. */
public interface IdentityService {
    Association associate(UserIdentity user, RunAsToken token);

    RunAsToken newRunAsToken(String name);

    UserIdentity getSystemUserIdentity();

    interface Association extends AutoCloseable {
        @Override
        void close();
    }

    interface RunAsToken {}
}
