package org.eclipse.jetty.security;

import org.eclipse.jetty.server.Handler;

/**
 * Stands in for the class of jetty-security 12, which the wheel of the jars lacks. Connect's REST server names these
 * types, and uses none of them: it has no security handler.
 */
public abstract class SecurityHandler extends Handler.Wrapper {
    public IdentityService getIdentityService() {
        return null;
    }
}
